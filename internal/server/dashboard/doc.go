// Package dashboard serves the web page of a member and its live data.
//
// The page is a client of the API: it authenticates with a secret, and its data needs
// the rights that the calls of the API need. Only the files of the page are public.
//
// Files, in reading order:
//
//   - handler.go: [Handler], its parts, and GET /ui/me.
//   - assets.go: the files of the page, with their headers.
//   - live.go: GET /ui/live, a stream of events for one view.
//   - views.go: what each view sends.
package dashboard
