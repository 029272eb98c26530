"""The page, one module a tab. Only `app.ui` imports these; they may import Gradio."""
