// Package model is a second version of the replicated state machine,
// written to be read and believed, not to be run in production.
//
// What it is not: it is not fast, it cannot be encoded or restored, and it
// shares no code with the machine. What it knows comes from the words of the
// design, so that an error in the machine is not repeated here.
//
// The nouns, in reading order:
//
//   - [Model]: one flat list of all requests ever made. After every command it
//     looks at all of them again to find out who may be granted.
//   - [Outcome] and [Event]: what it answers, in words of its own.
//   - [Witness]: the promises, held against a stream of events. It believes
//     neither the machine nor the model.
package model
