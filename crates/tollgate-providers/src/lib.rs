//! Sans-I/O adapters for LLM provider protocols: request facts, input estimate, usage meter, error bodies.
