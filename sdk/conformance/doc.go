// Package conformance checks that the clients in Go, Python and TypeScript behave alike.
//
// The scenarios in scenarios.json are run by all clients side by side against a real service.
// The test is the driver: it starts the service, makes the faults, tells each client what to do
// and compares the results. sdk/python/tests/runner.py and sdk/typescript/test/runner.js do what it
// tells them, one line of JSON for each call and each result.
//
//	go test -v -run TestClientsBehaveAlike ./sdk/conformance
//
// prints a table with a row for each scenario and a column for each client. With -args -scenario TEXT it
// runs only the scenarios whose names contain the text.
//
// TestPython and TestTypeScript run the tests of these clients, so that make mutants can remove their
// safety measures, too. They can run some tests of a suite:
//
//	go test -run TestPython ./sdk/conformance -args -k loss
//	go test -run TestTypeScript ./sdk/conformance -args -k faults -name pause
package conformance
