package tfstate

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// maxState bounds a request.
const maxState = 256 << 20

// Handler serves states. The path of a request names the state; its lock and its gate
// have the same name, with a prefix.
type Handler struct {
	locks   *lease.Client
	storage Storage
	config  Config

	mu     sync.Mutex
	leases map[fencing.Resource]*lease.Lease // the newest of each state
}

// Config configures a Handler.
type Config struct {
	Prefix string            // of the names of locks, such as "tfstate/"
	Users  map[string]string // passwords by user, for Basic authentication; everyone may do everything if empty
	Log    *slog.Logger
}

// New returns a Handler.
func New(locks *lease.Client, storage Storage, config Config) *Handler {
	return &Handler{locks: locks, storage: storage, config: config, leases: map[fencing.Resource]*lease.Lease{}}
}

// ServeHTTP serves a request of the http backend of Terraform and OpenTofu, and these:
//
//	GET  /name?versions    the list of versions, as JSON
//	GET  /name?version=3   a version
//	POST /name?restore=3   make a version the newest again, with a new serial
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, ok := h.authenticate(r)
	if !ok {
		problem := "give a user and a password"
		if r.Header.Get("Authorization") != "" {
			problem = "the user or the password is wrong"
			h.config.Log.Warn("refused a user: "+problem, "user", who, "address", r.RemoteAddr)
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="leased"`)
		http.Error(w, problem, http.StatusUnauthorized)
		return
	}
	body, err := h.serve(r, who)
	held := (*heldError)(nil)
	switch {
	case errors.As(err, &held) && strings.HasSuffix(r.Method, "LOCK"): // Terraform shows who has the lock
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusLocked)
		_ = json.NewEncoder(w).Encode(held.by)
	case err != nil:
		status := statusOf(err)
		if status != http.StatusNotFound { // the first run reads a state that does not exist
			h.config.Log.Warn("refused a request for a state", "method", r.Method, "path", r.URL.Path, "status", status, "error",
				err)
		}
		http.Error(w, err.Error(), status)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	}
}

// authenticate returns the name of the user, empty without users.
func (h *Handler) authenticate(r *http.Request) (string, bool) {
	if len(h.config.Users) == 0 {
		return "", true
	}
	user, password, _ := r.BasicAuth()
	want, known := h.config.Users[user]
	got, expected := sha256.Sum256([]byte(password)), sha256.Sum256([]byte(want))
	return user, known && subtle.ConstantTimeCompare(got[:], expected[:]) == 1
}

// requestLimit bounds the time to serve a request after its body has arrived. Without it, another gate that was stopped
// in the middle of a write, or a database that does not respond, would block the request forever.
const requestLimit = time.Minute

// serve does what the request asks for, and returns the body of the response.
func (h *Handler) serve(r *http.Request, who string) ([]byte, error) {
	ctx, query := r.Context(), r.URL.Query()
	resource, err := h.resource(r.URL)
	if err != nil {
		return nil, err
	}
	content, err := read(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	r = r.WithContext(ctx)
	switch r.Method {
	case "LOCK", "UNLOCK":
		var info LockInfo
		if err := json.Unmarshal(content, &info); len(content) > 0 && err != nil {
			return nil, fmt.Errorf("%w: decode the lock: %w", errRequest, err)
		}
		if r.Method == "UNLOCK" {
			return nil, h.unlock(ctx, resource, info.ID)
		}
		if info.ID == "" {
			return nil, fmt.Errorf("%w: the lock has no ID", errRequest)
		}
		_, err := h.lock(ctx, resource, info)
		return nil, err
	case http.MethodGet:
		return h.get(r, resource, query)
	case http.MethodPost:
		if query.Has("restore") {
			return h.restore(r, resource, who, query.Get("restore"))
		}
		return nil, h.post(r, resource, query.Get("ID"), content)
	case http.MethodDelete:
		return nil, h.locked(ctx, resource, who, "delete", func(by lock) error { return h.write(ctx, resource, by, nil) })
	}
	return nil, fmt.Errorf("%w: method %s is not LOCK, UNLOCK, GET, POST or DELETE", errRequest, r.Method)
}

// resource returns the name of the state. "@" separates the name from the digest of a
// stored state.
func (h *Handler) resource(u *url.URL) (fencing.Resource, error) {
	name := strings.Trim(u.Path, "/")
	if name == "" || strings.Contains(name, "@") {
		return "", fmt.Errorf("%w: the path must be the name of a state, without @, such as /prod/network", errRequest)
	}
	resource := fencing.Resource(h.config.Prefix + name)
	return resource, blob(resource, digest(nil)).Validate()
}

// read reads the body and compares it with its Content-MD5.
func read(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxState))
	if err != nil {
		return nil, fmt.Errorf("%w: read the body: %w", errRequest, err)
	}
	sum := md5.Sum(body) // a checksum of the protocol, not a proof
	if want := r.Header.Get("Content-MD5"); want != "" && want != base64.StdEncoding.EncodeToString(sum[:]) {
		return nil, fmt.Errorf("%w: the body does not have its Content-MD5", errRequest)
	}
	return body, nil
}

func (h *Handler) get(r *http.Request, resource fencing.Resource, query url.Values) ([]byte, error) {
	i, err := h.load(r.Context(), resource)
	if err != nil {
		return nil, err
	}
	if query.Has("versions") {
		return json.MarshalIndent(append([]Version{}, i.Versions...), "", "  ")
	}
	number := i.current().Number
	if query.Has("version") {
		if number, err = parseNumber(query.Get("version")); err != nil {
			return nil, err
		}
	}
	v, err := i.version(number)
	if err != nil {
		return nil, err
	}
	return h.state(r.Context(), resource, v.Digest)
}

func parseNumber(text string) (int, error) {
	number, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is not the number of a version", errRequest, text)
	}
	return number, nil
}

// post writes a state with the token of the lock that the request names.
func (h *Handler) post(r *http.Request, resource fencing.Resource, id string, state []byte) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(state, &object); err != nil || object == nil {
		return fmt.Errorf("%w: the state is not a JSON object", errRequest)
	}
	i, err := h.load(r.Context(), resource)
	if err != nil {
		return err
	}
	if i.Lock == nil || i.Lock.Info.ID != id {
		return notLocked(resource, id)
	}
	return h.write(r.Context(), resource, *i.Lock, state)
}

// restore writes an earlier version again, with a new serial, and returns the serial.
func (h *Handler) restore(r *http.Request, resource fencing.Resource, who, text string) (answer []byte, err error) {
	number, err := parseNumber(text)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	err = h.locked(ctx, resource, who, fmt.Sprintf("restore version %d", number), func(by lock) error {
		i, err := h.load(ctx, resource)
		if err != nil {
			return err
		}
		v, err := i.version(number)
		if err != nil {
			return err
		}
		state, err := h.state(ctx, resource, v.Digest)
		if err != nil {
			return err
		}
		raised, serial := i.raise(state)
		answer = fmt.Appendf(nil, `{"serial":%d}`, serial)
		if raised == nil {
			raised = state
			answer = fmt.Appendf(nil, `{"serial":%d,"warning":"the serial of this state cannot be changed, because the state `+
				`is encrypted or has no version, serial and lineage: delete saved plans, which could be accepted again"}`, v.Serial)
		}
		return h.write(ctx, resource, by, raised)
	})
	return answer, err
}
