// Package suites runs the tests of the clients in Python and TypeScript, so that make mutants can
// remove their safety measures, too. It can run some tests of a suite:
//
//	go test -run TestPython ./sdk/suites -args -k loss
//	go test -run TestTypeScript ./sdk/suites -args -k faults -name pause
package suites
