// Package browser starts a headless Chromium for the tests and the pictures of the
// dashboard. [Start] starts it, and a [Tab] is one page in it.
package browser
