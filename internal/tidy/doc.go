// Package tidy holds the house rules of this repository as tests.
//
// What it does not do: it does not judge a design. It sees imports, names,
// lengths and a few calls; that a rule is kept in spirit is for the reviewer.
//
// The nouns, all of them in test files, in reading order:
//
//   - rule: what must hold, how to check it, and samples that keep and break it.
//   - breach: one place that breaks a rule, as file:line.
//   - tree: the files of a repository, the real one or a sample.
//   - place: what a part of the repository may import.
//
// Each rule has a file of its own. A rule without a sample that breaks it is a
// defect, and a test says so.
package tidy
