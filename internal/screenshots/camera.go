package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/leased-project/leased/internal/browser"
	"github.com/leased-project/leased/lease/engine"
)

const (
	// viewTimeout bounds the time until a view shows its data.
	viewTimeout = 60 * time.Second
	// settleTime lets a view receive a few more events.
	settleTime = 2500 * time.Millisecond
)

// view is a page to take a picture of.
type view struct {
	name, fragment string
	ready          string // a selector of an element that appears with the data
	click          string // an element to click then; empty for none
}

// views are those of the demo load.
var views = []view{
	{"locks", "#/", ".locks tbody tr:nth-child(8)", ""},
	{"lock", "#/lock/deploy%2Fproduction", ".queue li:nth-child(3)", ""},
	{"history", "#/lock/ledger%2F2026", ".event.refused", ""},
	{"break", "#/lock/deploy%2Fproduction", ".holder .danger", ".holder .danger"},
	{"cluster", "#/cluster", ".cluster tbody tr", ""},
	{"policies", "#/policies", ".policies tbody tr", ""},
}

// size is the size of a window.
type size struct {
	name          string
	width, height int64
}

var sizes = []size{{"laptop", 1280, 800}, {"phone", 390, 844}}

// takeAll writes a screenshot of every view in every size and color scheme.
func takeAll(ctx context.Context, url, out string) error {
	b, err := browser.Start(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	for _, s := range sizes {
		for _, scheme := range []string{"light", "dark"} {
			for _, v := range views {
				file := filepath.Join(out, fmt.Sprintf("%s-%s-%s.png", v.name, s.name, scheme))
				if err := take(ctx, b, url+"/"+v.fragment, v, s, scheme, file); err != nil {
					return fmt.Errorf("picture %s: %w", file, err)
				}
				fmt.Println(file)
			}
		}
	}
	return nil
}

// take writes one picture.
func take(ctx context.Context, b *browser.Browser, url string, v view, s size, scheme, file string) error {
	ctx, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	tab, err := b.Open(ctx)
	if err != nil {
		return err
	}
	defer tab.Close()
	if err := errors.Join(tab.Show(s.width, s.height, scheme), tab.Go(url)); err != nil {
		return err
	}
	if err := tab.Await(ctx, fmt.Sprintf("document.querySelector(%q)", v.ready)); err != nil {
		return err
	}
	if err := engine.Sleep(ctx, settleTime); err != nil {
		return err
	}
	if v.click != "" {
		if err := tab.Do(chromedp.Click(chromedp.CSS(v.click)), chromedp.WaitVisible(chromedp.CSS("dialog"))); err != nil {
			return err
		}
	}
	picture, err := tab.Picture()
	if err != nil {
		return err
	}
	return os.WriteFile(file, picture, 0o644)
}
