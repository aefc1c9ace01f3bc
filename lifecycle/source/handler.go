// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The bounds of a [Handler] that are not those of a [Dir].
const (
	DefaultBodyTimeout = 30 * time.Second
	maxBodies          = 4 // that are read and decoded at a time
)

// fileName is what a manifest may be called that comes over HTTP: nothing that a Dir leaves alone or that leads elsewhere.
var fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// maxFileName is how long it may be. In the expression the number would take 190 KiB and 5 ms of every program.
const maxFileName = 200

// HandlerOptions tunes a [Handler]. The zero value is for production.
type HandlerOptions struct {
	NodeName    string        // see Origin; as the Dir that reads the directory has it; empty: pods keep their names
	Objects     bool          // see Origin; the same
	Tokens      bool          // see Origin; the same
	BodyTimeout time.Duration // of a client that sends a manifest; zero: DefaultBodyTimeout
	// Status returns the status of a pod by its UID, or nil; nil lists pods without any. It is called from several goroutines.
	Status func(uid string) *corev1.PodStatus
}

// Handler serves the manifests of a directory over HTTP, and takes new ones. A [Dir] reads the directory, so that what is put
// here is what was written there by hand; without one nothing runs.
//
//	GET /          every manifest with its pods, their status, and what is wrong with it: a [ManifestList]
//	GET /NAME      a manifest as it was written
//	PUT /NAME      writes a manifest, if none of its pods has an error; answers with a [Manifest]
//	DELETE /NAME   removes one, and so its pods
//
// A manifest is decoded and refused as a Dir would, before it is written, and is on the disk when the answer is sent: 422 with
// one error a line, 409 for a pod that another manifest has, 413 and 507 for one that is too large or does not fit beside the
// others. Links and special files are never read, replaced or removed (409). An ETag tells versions apart; If-Match and
// If-None-Match: * are observed (412).
//
// It asks nobody who the client is: mount it behind authorization, or on a socket that only its users may use. The directory
// must not belong to anybody whom the agent does not trust.
type Handler struct {
	dir    string
	opts   HandlerOptions
	bodies chan struct{} // has room for as many as are taken at a time

	mu   sync.Mutex // guards what follows, and changes of the directory
	view *Dir       // what it holds
}

// ManifestList is what a [Handler] answers to GET /.
type ManifestList struct {
	Manifests []Manifest `json:"manifests"`        // by name
	Errors    []string   `json:"errors,omitempty"` // about the directory
}

// Manifest is a file of a directory, with what it holds.
type Manifest struct {
	Name   string        `json:"name"`
	Pods   []*corev1.Pod `json:"pods"`             // as they are to run, with their status
	Errors []string      `json:"errors,omitempty"` // with lines and fields; the pods are those that it held before
}

// NewHandler returns a Handler for a directory, which is made with the first manifest if it is not there.
func NewHandler(dir string, o HandlerOptions) *Handler {
	o.BodyTimeout = cmp.Or(o.BodyTimeout, DefaultBodyTimeout)
	view := NewDir(dir, DirOptions{NodeName: o.NodeName, Objects: o.Objects, Tokens: o.Tokens, Settle: 1})
	return &Handler{dir: view.path, opts: o, bodies: make(chan struct{}, maxBodies), view: view}
}

// ServeHTTP answers a request whose path is that of a manifest, or "/"; use [http.StripPrefix] to mount it elsewhere.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	allow := "GET, HEAD"
	if name != "" {
		allow += ", PUT, DELETE"
	}
	var err error
	switch {
	case name != "" && (len(name) > maxFileName || !fileName.MatchString(name)):
		err = refuse(http.StatusBadRequest, "manifest %.100q: want a name of letters, digits, '.', '_' and '-', which begins with a letter or digit", name)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		err = h.get(w, name)
	case name != "" && r.Method == http.MethodPut:
		err = h.put(w, r, name)
	case name != "" && r.Method == http.MethodDelete:
		err = h.remove(r, name)
		if err == nil {
			w.WriteHeader(http.StatusNoContent)
		}
	default:
		w.Header().Set("Allow", allow)
		err = refuse(http.StatusMethodNotAllowed, "method %.20s: want %s", r.Method, allow)
	}
	if err != nil {
		status := http.StatusInternalServerError
		if e, ok := errors.AsType[*refusal](err); ok {
			status = e.status
		}
		http.Error(w, err.Error(), status)
	}
}

// get answers with a manifest, or with the list of them.
func (h *Handler) get(w http.ResponseWriter, name string) error {
	if name == "" {
		return answer(w, http.StatusOK, h.list())
	}
	data, err := h.stored(name)
	switch {
	case err != nil:
		return err
	case data == nil:
		return refuse(http.StatusNotFound, "manifest %s: there is none", name)
	}
	w.Header().Set("Content-Type", "application/yaml")
	if strings.HasPrefix(strings.TrimSpace(string(data[:min(len(data), 100)])), "{") {
		w.Header().Set("Content-Type", "application/json")
	}
	w.Header().Set("ETag", etag(data))
	_, err = w.Write(data)
	if err != nil {
		return nil //nolint:nilerror // the client is not there any more
	}
	return nil
}

// put takes a manifest.
func (h *Handler) put(w http.ResponseWriter, r *http.Request, name string) error {
	// Not every writer has deadlines; the server's own hold as well. It is there for one that is refused, too: the server reads on.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.opts.BodyTimeout))
	select {
	case h.bodies <- struct{}{}:
		defer func() { <-h.bodies }()
	default:
		w.Header().Set("Retry-After", "1")
		return refuse(http.StatusServiceUnavailable, "manifest %s: %d others are being taken", name, maxBodies)
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSize))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refuse(http.StatusRequestEntityTooLarge, "manifest %s: more than %d bytes", name, maxSize)
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "manifest %s: read body: %v", name, err)
	}
	made, created, err := h.store(r.Header, name, data)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", etag(data))
	if created {
		return answer(w, http.StatusCreated, made)
	}
	return answer(w, http.StatusOK, made)
}

// list returns what the directory holds.
func (h *Handler) list() ManifestList {
	h.mu.Lock()
	defer h.mu.Unlock()
	u := h.look()
	list := ManifestList{Manifests: []Manifest{}}
	byFile := make(map[string]int)
	for _, path := range h.view.order() {
		m := Manifest{Name: filepath.Base(path), Pods: []*corev1.Pod{}}
		for _, e := range h.view.files[path].entries {
			if e.won {
				m.Pods = append(m.Pods, h.withStatus(e.pod))
			}
		}
		byFile[path] = len(list.Manifests)
		list.Manifests = append(list.Manifests, m)
	}
	for _, e := range u.Errs {
		if i, ok := byFile[e.File]; ok {
			list.Manifests[i].Errors = append(list.Manifests[i].Errors, h.text(e))
		} else if !errors.Is(e, fs.ErrNotExist) { // before the first manifest there need not be a directory
			list.Errors = append(list.Errors, e.Error())
		}
	}
	return list
}

// look reads what has changed in the directory. The second look takes what the first one saw for the first time.
func (h *Handler) look() Update {
	now := time.Now()
	h.view.Scan(now)
	return h.view.Scan(now.Add(time.Millisecond))
}

// withStatus returns a copy of a pod with its status.
func (h *Handler) withStatus(pod *corev1.Pod) *corev1.Pod {
	shown := *pod
	shown.Kind, shown.APIVersion = "Pod", "v1"
	if h.opts.Status != nil {
		if s := h.opts.Status(string(pod.UID)); s != nil {
			shown.Status = *s
		}
	}
	return &shown
}

// text is an error as the client knows the file.
func (h *Handler) text(e *Error) string {
	return strings.ReplaceAll(e.Error(), h.dir+string(filepath.Separator), "")
}

// answer sends a value as JSON. What cannot be encoded is a bug, and an error of the server.
func answer(w http.ResponseWriter, status int, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // nobody to tell
	return nil
}
