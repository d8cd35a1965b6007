// Package logtest captures log records, for tests that check what a program logs and how
// often.
//
// Reading order: Log, Line.
package logtest
