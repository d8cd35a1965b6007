// Package browser starts a headless Chromium for tests and screenshots of the
// dashboard. [Start] starts it, and a [Tab] is one page in it.
package browser
