package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	out := flag.String("out", filepath.Join("out", "screenshots"), "folder for the pictures")
	url := flag.String("url", "", "URL of a running service with the demo load; default: start one")
	flag.Parse()
	err := run(ctx, *out, *url)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, url string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if url == "" {
		var d demo
		defer d.stop()
		if err := d.start(ctx); err != nil {
			return err
		}
		url = d.url
	}
	return takeAll(ctx, url, out)
}
