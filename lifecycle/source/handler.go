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

// Limits of a [Handler]. The limits of [Dir] apply as well.
const (
	DefaultBodyTimeout = 30 * time.Second
	maxUploads         = 4 // manifests that are received and decoded at the same time
)

// fileName matches the valid names of uploaded manifests. Names of hidden files and names with a slash are not valid.
var fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// maxFileName is the maximum length of a file name. It is not part of the expression fileName, because to compile that would take
// 5 ms and 190 KiB.
const maxFileName = 200

// HandlerOptions configures a [Handler]. The zero value is valid.
type HandlerOptions struct {
	NodeName     string        // see Origin; must be that of the Dir; empty: pod names are unchanged
	AllowObjects bool          // see Origin; must be that of the Dir
	AllowTokens  bool          // see Origin; must be that of the Dir
	BodyTimeout  time.Duration // time limit for receiving a manifest; zero: DefaultBodyTimeout
	// Status returns the status of the pod with this UID, or nil if there is none. Calls may be concurrent. If the field Status
	// is nil, the list of manifests has pods without status.
	Status func(uid string) *corev1.PodStatus
}

// Handler serves and accepts the manifests of a directory over HTTP. It only changes files: a [Dir] must read the directory, or
// nothing runs.
//
//	GET /          all manifests with their pods, pod statuses and errors: a [ManifestList]
//	GET /NAME      a manifest as it was written
//	PUT /NAME      writes a manifest if all its pods are valid; returns a [Manifest]
//	DELETE /NAME   removes a manifest and thereby its pods
//
// A manifest is validated before it is written, and is on disk when the response is sent. Errors have these status codes:
//
//	400  the name is invalid, or the body cannot be read
//	404  the manifest does not exist
//	409  a pod belongs to another manifest, or the file is a link or special file, which is never read, replaced or removed
//	412  If-Match or "If-None-Match: *" does not allow the change; the ETag identifies a version
//	413  the manifest is too large
//	422  the manifest is invalid; the body has one error per line
//	503  too many manifests are being uploaded
//	507  the directory is full
//
// Handler does not authenticate clients: mount it behind authorization, or on a socket that only its users can access. Only
// trusted users may write to the directory.
type Handler struct {
	dir     string
	opts    HandlerOptions
	uploads chan struct{} // semaphore with capacity maxUploads

	mu   sync.Mutex // guards view, and changes of the directory
	view *Dir       // the pods of the directory
}

// ManifestList is the response of a [Handler] to GET /.
type ManifestList struct {
	Manifests []Manifest `json:"manifests"`        // sorted by name
	Errors    []string   `json:"errors,omitempty"` // of the directory
}

// Manifest is one manifest file with its pods and errors, as [Handler] returns it.
type Manifest struct {
	Name   string        `json:"name"`
	Pods   []*corev1.Pod `json:"pods"`             // the pods that run, with their status
	Errors []string      `json:"errors,omitempty"` // with line and field; if there are any, Pods are the last valid pods of the manifest
}

// NewHandler returns a Handler for the manifests in the directory dir. If it does not exist, the first upload creates it.
func NewHandler(dir string, opts HandlerOptions) *Handler {
	opts.BodyTimeout = cmp.Or(opts.BodyTimeout, DefaultBodyTimeout)
	view := NewDir(dir, DirOptions{NodeName: opts.NodeName, AllowObjects: opts.AllowObjects, AllowTokens: opts.AllowTokens, StableFor: 1})
	return &Handler{dir: view.path, opts: opts, uploads: make(chan struct{}, maxUploads), view: view}
}

// ServeHTTP serves the list of manifests at the path "/", and a single manifest at "/NAME". To serve them below another
// path, wrap the Handler in [http.StripPrefix].
func (h *Handler) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	name := strings.TrimPrefix(request.URL.Path, "/")
	allow := "GET, HEAD"
	if name != "" {
		allow += ", PUT, DELETE"
	}
	var err error
	switch {
	case name != "" && (len(name) > maxFileName || !fileName.MatchString(name)):
		err = newHTTPError(http.StatusBadRequest, "manifest %.100q: want a name of letters, digits, '.', '_' and '-', which begins with a letter or digit", name)
	case request.Method == http.MethodGet || request.Method == http.MethodHead:
		err = h.serveGet(w, name)
	case name != "" && request.Method == http.MethodPut:
		err = h.servePut(w, request, name)
	case name != "" && request.Method == http.MethodDelete:
		err = h.removeManifest(request, name)
		if err == nil {
			w.WriteHeader(http.StatusNoContent)
		}
	default:
		w.Header().Set("Allow", allow)
		err = newHTTPError(http.StatusMethodNotAllowed, "method %.20s: want %s", request.Method, allow)
	}
	if err != nil {
		status := http.StatusInternalServerError
		if e, ok := errors.AsType[*httpError](err); ok {
			status = e.status
		}
		http.Error(w, err.Error(), status)
	}
}

// serveGet writes the content of the named manifest to the response. If name is empty, it writes the list of all manifests.
func (h *Handler) serveGet(w http.ResponseWriter, name string) error {
	if name == "" {
		return writeJSON(w, http.StatusOK, h.listManifests())
	}
	data, err := h.readManifest(name)
	switch {
	case err != nil:
		return err
	case data == nil:
		return newHTTPError(http.StatusNotFound, "manifest %s: not found", name)
	}
	w.Header().Set("Content-Type", "application/yaml")
	if strings.HasPrefix(strings.TrimSpace(string(data[:min(len(data), 100)])), "{") {
		w.Header().Set("Content-Type", "application/json")
	}
	w.Header().Set("ETag", etagOf(data))
	_, err = w.Write(data)
	if err != nil {
		return nil // the client has disconnected
	}
	return nil
}

// servePut stores the manifest in the request body, and responds with its pods.
func (h *Handler) servePut(w http.ResponseWriter, request *http.Request, name string) error {
	// Not every ResponseWriter supports deadlines; the timeouts of the server apply as well. Set it also for a rejected request,
	// whose body the server still reads.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.opts.BodyTimeout))
	select {
	case h.uploads <- struct{}{}:
		defer func() { <-h.uploads }()
	default:
		w.Header().Set("Retry-After", "1")
		return newHTTPError(http.StatusServiceUnavailable, "manifest %s: %d uploads are in progress", name, maxUploads)
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, request.Body, maxSize))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return newHTTPError(http.StatusRequestEntityTooLarge, "manifest %s: more than %d bytes", name, maxSize)
	}
	if err != nil {
		return newHTTPError(http.StatusBadRequest, "manifest %s: read body: %v", name, err)
	}
	stored, created, err := h.storeManifest(request.Header, name, data)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", etagOf(data))
	if created {
		return writeJSON(w, http.StatusCreated, stored)
	}
	return writeJSON(w, http.StatusOK, stored)
}

// listManifests returns all manifests of the directory with their pods and errors.
func (h *Handler) listManifests() ManifestList {
	h.mu.Lock()
	defer h.mu.Unlock()
	u := h.rescanDir()
	list := ManifestList{Manifests: []Manifest{}}
	byFile := make(map[string]int)
	for _, path := range h.view.sortedPaths() {
		m := Manifest{Name: filepath.Base(path), Pods: []*corev1.Pod{}}
		for _, e := range h.view.files[path].entries {
			if e.inSet {
				m.Pods = append(m.Pods, h.copyWithStatus(e.pod))
			}
		}
		byFile[path] = len(list.Manifests)
		list.Manifests = append(list.Manifests, m)
	}
	for _, e := range u.Errs {
		if i, ok := byFile[e.File]; ok {
			list.Manifests[i].Errors = append(list.Manifests[i].Errors, h.errorText(e))
		} else if !errors.Is(e, fs.ErrNotExist) { // a missing directory is no error before the first upload
			list.Errors = append(list.Errors, e.Error())
		}
	}
	return list
}

// rescanDir reads the changed files of the directory, and returns its pods.
func (h *Handler) rescanDir() Update {
	now := time.Now()
	h.view.Scan(now) // the second scan reads the files that the first has found stable
	return h.view.Scan(now.Add(time.Millisecond))
}

// copyWithStatus returns a copy of the pod with the status that HandlerOptions.Status returns for it, if any.
func (h *Handler) copyWithStatus(pod *corev1.Pod) *corev1.Pod {
	shown := *pod
	shown.Kind, shown.APIVersion = "Pod", "v1"
	if h.opts.Status != nil {
		if s := h.opts.Status(string(pod.UID)); s != nil {
			shown.Status = *s
		}
	}
	return &shown
}

// errorText returns the text of an error in a manifest without the path of the directory, which clients must not see.
func (h *Handler) errorText(manifestErr *Error) string {
	return strings.ReplaceAll(manifestErr.Error(), h.dir+string(filepath.Separator), "")
}

// writeJSON writes v as JSON to the response. It returns an error if v cannot be encoded, which is a bug.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // ignored: the client has disconnected
	return nil
}
