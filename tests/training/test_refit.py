"""The refitted unembedding names tokens that the decode head has never seen."""

from __future__ import annotations

import numpy as np

from training.refit import _nll, fit


def test_a_fit_names_tokens_it_was_not_fitted_on():
    rng = np.random.default_rng(0)
    table = rng.standard_normal((300, 16)).astype(np.float32)
    mixing = rng.standard_normal((16, 24))
    tokens = np.concatenate([rng.integers(0, 200, 4000), rng.integers(200, 300, 1000)])
    y = table[tokens] @ mixing + 0.1 * rng.standard_normal((5000, 24))
    kernel, bias, loss = fit(y.astype(np.float32), tokens.astype(np.int32), table)
    assert kernel.shape == (24, 300)
    logits = y[4000:] @ kernel + bias
    assert (logits.argmax(1) == tokens[4000:]).mean() > 0.95, "tokens 200 to 299 are held out"
    assert loss < 1.0
    np.testing.assert_allclose(loss, _nll(logits, tokens[4000:]), rtol=1e-3)
