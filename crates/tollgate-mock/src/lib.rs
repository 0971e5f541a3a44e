//! A provider that answers like Anthropic and OpenAI, for the demo, the tests and the benches.
