// Command screenshots takes pictures of the dashboard: every view, at the sizes of a
// laptop and of a phone, in light and dark colors. It builds leased, starts three
// members and five Redis nodes, and runs `leased demo load` on them. `make screenshots`
// runs it.
//
// Files, in reading order: main.go, the flags; demo.go, the processes of the service;
// camera.go, the browser.
package main
