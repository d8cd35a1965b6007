// Package tidy checks the rules of this repository as tests.
//
// It does not judge a design. It sees imports, names, lengths, words and a few
// calls; reviewers decide the rest.
//
// The types, all of them in test files, in reading order:
//
//   - rule: a property that must hold, its check, and samples that keep and break it.
//   - breach: one place that breaks a rule, as file:line.
//   - tree: the files of a repository, the real one or a sample.
//   - place: a row of the import matrix (matrix_test.go).
//
// Each rule has its own file. A test fails if a rule has no sample that breaks it.
package tidy
