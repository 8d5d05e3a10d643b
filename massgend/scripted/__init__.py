"""A scripted model: stands in for a model provider; its script stands in the prompt. See docs/scripted-model.md."""
