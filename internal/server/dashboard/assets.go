package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"time"
)

//go:embed assets
var assets embed.FS

// policy allows the page to load nothing but its own files and data, and no other page to
// contain it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// types are the content types of the files. The table of the operating system may differ.
var types = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

// file is one file of the page.
type file struct {
	data     []byte
	kind     string // content type
	identity string // ETag
}

// loadFiles returns the embedded files by their paths.
func loadFiles() map[string]file {
	files := map[string]file{}
	err := fs.WalkDir(assets, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := assets.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		f := file{data: data, kind: types[path.Ext(name)], identity: fmt.Sprintf(`"%x"`, sum[:12])}
		files["/ui/"+name[len("assets/"):]] = f
		if name == "assets/index.html" {
			files["/"] = f
		}
		return nil
	})
	if err != nil {
		panic(err) // the files are part of the program
	}
	return files
}

// IsFile reports whether the page has a file with this path.
func (h *Handler) IsFile(path string) bool {
	_, ok := h.files[path]
	return ok
}

// File writes a file of the page. The path must be one for which IsFile is true.
func (h *Handler) File(w http.ResponseWriter, r *http.Request) {
	f := h.files[r.URL.Path]
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-cache")
	header.Set("Content-Type", f.kind)
	header.Set("ETag", f.identity)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.data))
}
