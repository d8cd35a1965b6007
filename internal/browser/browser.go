package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// pollInterval is the time between two checks of a condition in a page.
const pollInterval = 25 * time.Millisecond

// programs are the names of Chromium.
var programs = []string{"chromium", "chromium-browser", "google-chrome"}

// options turn off what a test does not need, besides the defaults of chromedp: the GPU, the sandbox (which root does
// not have), and more of what would contact other hosts.
var options = append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU,
	chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
	chromedp.Flag("proxy-server", "direct://"))

// Browser is a running Chromium.
type Browser struct {
	ctx   context.Context // of its first tab, which keeps it running
	Close func()
}

// Start starts Chromium with an empty profile. The caller must close it.
func Start(ctx context.Context) (*Browser, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}
	profile, err := os.MkdirTemp("", "leased-browser-")
	if err != nil {
		return nil, err
	}
	process, endProcess := chromedp.NewExecAllocator(ctx, append(slices.Clip(options), chromedp.ExecPath(path),
		chromedp.UserDataDir(profile))...)
	first, endFirst := chromedp.NewContext(process)
	b := &Browser{ctx: first, Close: func() {
		endFirst()
		endProcess()
		_ = os.RemoveAll(profile) // it is below the temporary folder
	}}
	if err := chromedp.Do(first); err != nil {
		b.Close()
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return b, nil
}

func find() (string, error) {
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("chromium is not installed; install it (Debian: apt-get install chromium)")
}

// Tab is a page. Its storage is shared with no other tab.
type Tab struct {
	ctx   context.Context
	Close func()
}

// Open opens a tab, which ends with ctx or with Close.
func (b *Browser) Open(ctx context.Context) (*Tab, error) {
	tab, end := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	stop := context.AfterFunc(ctx, end)
	t := &Tab{ctx: tab, Close: func() { stop(); end() }}
	// Tabs in the background would get no animation frames and no focus.
	_, err := chromedp.Call(tab, emulation.SetFocusEmulationEnabled,
		emulation.SetFocusEmulationEnabledParams{Enabled: true})
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("open a tab: %w", err)
	}
	return t, nil
}

// Do runs actions in the tab.
func (t *Tab) Do(actions ...chromedp.Action[chromedp.Void]) error {
	return chromedp.Do(t.ctx, actions...)
}

// Go navigates to a URL.
func (t *Tab) Go(url string) error { return t.Do(chromedp.Navigate(url)) }

// Show sets the size of the window and the color scheme, "light" or "dark".
func (t *Tab) Show(width, height int64, scheme string) error {
	if err := t.Do(chromedp.EmulateViewport(width, height)); err != nil {
		return err
	}
	_, err := chromedp.Call(t.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	return err
}

// Picture returns the window as a PNG file.
func (t *Tab) Picture() ([]byte, error) { return chromedp.Run(t.ctx, chromedp.CaptureScreenshot()) }

// Console returns the messages of the page's console that come from now on, until the
// tab is closed.
func (t *Tab) Console() func(yield func(chromedp.ConsoleMessage, error) bool) {
	return chromedp.Console(t.ctx)
}

// Value evaluates an expression in the page.
func Value[T any](t *Tab, expression string) (T, error) {
	return chromedp.Run(t.ctx, chromedp.Evaluate[T](expression))
}

// Await waits until an expression in the page is true, or ctx ends.
func (t *Tab) Await(ctx context.Context, expression string) error {
	for {
		holds, err := Value[bool](t, "Boolean("+expression+")")
		if err != nil {
			return err
		}
		if holds {
			return nil
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", expression, ctx.Err())
		}
	}
}
