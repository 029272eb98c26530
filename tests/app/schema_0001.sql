BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE generations (
	id VARCHAR(26) NOT NULL, 
	parent_id VARCHAR(26), 
	created_utc VARCHAR(32) NOT NULL, 
	editor VARCHAR(32) NOT NULL, 
	input TEXT NOT NULL, 
	output TEXT NOT NULL, 
	request_json TEXT NOT NULL, 
	settings_json TEXT NOT NULL, 
	seed BIGINT NOT NULL, 
	sample_index INTEGER NOT NULL, 
	model TEXT NOT NULL, 
	model_hash TEXT NOT NULL, 
	backend VARCHAR(32) NOT NULL, 
	seconds FLOAT NOT NULL, 
	warnings_json TEXT NOT NULL, 
	versions_json TEXT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(parent_id) REFERENCES generations (id)
);
INSERT INTO "generations" VALUES('1m8q2encbh8esw',NULL,'2026-11-30T20:43:37.392Z','draft','Once — “upon” 🧝','Once — “upon” 🧝 a time','{"editor": "draft", "text": "Once — “upon” 🧝", "count": 2, "length": 0, "settings": {"steps": 4, "sampler": "sde", "gamma": 1.0, "guidance": 1.0, "condition_guidance": 1.0, "grid": "uniform", "seed": 7}, "texts_every_step": false, "first": 0, "strength": 0.5, "spans": []}','{"steps": 4, "sampler": "sde", "gamma": 1.0, "guidance": 1.0, "condition_guidance": 1.0, "grid": "uniform", "seed": 7}',7,1,'starter','ab12','torch',0.5,'[]','{"python": "3.11.7", "torch": "2.13.0"}');
CREATE TABLE steps (
	generation_id VARCHAR(26) NOT NULL, 
	i INTEGER NOT NULL, 
	t FLOAT NOT NULL, 
	text TEXT NOT NULL, 
	PRIMARY KEY (generation_id, i), 
	FOREIGN KEY(generation_id) REFERENCES generations (id) ON DELETE CASCADE
);
INSERT INTO "steps" VALUES('1m8q2encbh8esw',1,0.5,'Once…');
CREATE INDEX ix_generations_editor_id ON generations (editor, id);
COMMIT;
