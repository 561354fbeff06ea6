"""Installs as a stranger would do them: the README's commands and snippets, the steps of the Dockerfile."""
