package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"time"
)

// recorder takes the profiles of this process, the client, and of servers.
type recorder struct {
	folder  string
	workers int
	length  time.Duration
	servers map[string]string // addresses by the name of the process

	work   sync.WaitGroup
	client *os.File

	mu    sync.Mutex
	files map[string]string // by the name of the process
	err   error
}

// file returns the name of the file of a profile.
func (r *recorder) file(process string) string {
	return filepath.Join(r.folder, fmt.Sprintf("%s-%d.pprof", process, r.workers))
}

// begin starts the profiles. Those of the servers end by themselves.
func (r *recorder) begin(ctx context.Context) {
	r.files = map[string]string{"client": r.file("client")}
	if r.client, r.err = os.Create(r.files["client"]); r.err == nil {
		r.err = pprof.StartCPUProfile(r.client)
	}
	for process, address := range r.servers {
		r.work.Go(func() {
			err := r.fetch(ctx, address, r.file(process))
			r.mu.Lock()
			defer r.mu.Unlock()
			r.files[process] = r.file(process)
			r.err = errors.Join(r.err, err)
		})
	}
}

// end waits for the profiles.
func (r *recorder) end() {
	pprof.StopCPUProfile()
	r.work.Wait()
	if r.client != nil {
		r.err = errors.Join(r.err, r.client.Close())
	}
}

// fetch reads the profile of a server into a file.
func (r *recorder) fetch(ctx context.Context, address, file string) error {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", address, int(r.length.Seconds()))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("read %s: %s", url, response.Status)
	}
	return os.WriteFile(file, data, 0o600)
}
