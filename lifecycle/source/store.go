// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
)

// refusal is an error with a status of HTTP.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status: status, text: fmt.Sprintf(format, args...)}
}

// etag names a version of a manifest.
func etag(data []byte) string {
	sum := sha256.Sum256(data)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// store writes a manifest, if it can run beside the others, and reports whether it was not there before.
func (h *Handler) store(header http.Header, name string, data []byte) (made Manifest, created bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old, err := h.version(header, name)
	if err != nil {
		return Manifest{}, false, err
	}
	h.look()
	path := filepath.Join(h.dir, name)
	entries, cost, err := h.decode(path, data)
	if err != nil {
		return Manifest{}, false, err
	}
	if err := h.room(path, cost); err != nil {
		return Manifest{}, false, err
	}
	if err := h.write(path, data); err != nil {
		return Manifest{}, false, fmt.Errorf("manifest %s: %w", name, err)
	}
	made = Manifest{Name: name, Pods: []*corev1.Pod{}}
	for _, e := range entries {
		made.Pods = append(made.Pods, h.withStatus(e.pod))
	}
	return made, old == nil, nil
}

// decode returns the pods of a manifest, or an error with all that is wrong with it.
func (h *Handler) decode(path string, data []byte) ([]entry, cost, error) {
	entries, errs, cost := parse(data, Origin{
		Source: File, Location: path, NodeName: h.opts.NodeName, Objects: h.opts.Objects, Tokens: h.opts.Tokens, Seen: time.Now(),
	})
	status := http.StatusUnprocessableEntity
	if len(errs) == 0 {
		status, errs = http.StatusConflict, h.taken(path, entries)
	}
	if len(errs) == 0 {
		return entries, cost, nil
	}
	lines := make([]string, len(errs))
	for i, e := range errs {
		lines[i] = h.text(e)
	}
	return nil, cost, refuse(status, "%s", strings.Join(lines, "\n"))
}

// taken returns an error for each pod whose name or UID a pod of the manifest itself or of another has.
func (h *Handler) taken(path string, entries []entry) []*Error {
	var claims []claim
	for other, m := range h.view.files {
		for i := range m.entries {
			if e := m.entries[i]; other != path && e.won {
				claims = append(claims, claim{entry: &e, file: other})
			}
		}
	}
	for _, e := range entries {
		e.won = false
		claims = append(claims, claim{entry: &e, file: path})
	}
	return settle(claims)[path]
}

// room returns an error if a manifest that costs so much does not fit into the directory.
func (h *Handler) room(path string, c cost) error {
	others, files := h.view.kept, len(h.view.files)
	if m := h.view.files[path]; m != nil {
		others, files = others.minus(m.cost), files-1
	}
	most, all := maxCost(), others.plus(c)
	switch {
	case files >= maxFiles:
		return refuse(http.StatusInsufficientStorage, "manifest %s: the directory has %d files", filepath.Base(path), files)
	case all.values > most.values || all.bytes > most.bytes:
		return refuse(http.StatusInsufficientStorage, "manifest %s: the manifests have more than %d values or %d bytes together",
			filepath.Base(path), most.values, most.bytes)
	}
	return nil
}

// write puts a manifest on the disk.
func (h *Handler) write(path string, data []byte) error {
	if _, err := os.Stat(h.dir); errors.Is(err, fs.ErrNotExist) {
		if err := errors.Join(os.MkdirAll(h.dir, 0o700), atomicfile.SyncDir(filepath.Dir(h.dir))); err != nil {
			return err
		}
	}
	// What a writer has left that was killed is not read by anybody, but takes room.
	if err := atomicfile.Clean(path); err != nil {
		return err
	}
	return atomicfile.WriteFile(path, data, 0o600)
}

// remove removes a manifest.
func (h *Handler) remove(r *http.Request, name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	old, err := h.version(r.Header, name)
	switch {
	case err != nil:
		return err
	case old == nil:
		return refuse(http.StatusNotFound, "manifest %s: there is none", name)
	}
	if err := errors.Join(os.Remove(filepath.Join(h.dir, name)), atomicfile.SyncDir(h.dir)); err != nil {
		return fmt.Errorf("manifest %s: %w", name, err)
	}
	return nil
}

// version returns the manifest that is there, or nil, if it is the one that a request wants to change.
func (h *Handler) version(header http.Header, name string) ([]byte, error) {
	old, err := h.stored(name)
	if err != nil {
		return nil, err
	}
	tag := ""
	if old != nil {
		tag = etag(old)
	}
	if list := header.Values("If-Match"); len(list) > 0 && (old == nil || !named(list, tag)) {
		return nil, refuse(http.StatusPreconditionFailed, "manifest %s: If-Match: it is another version", name)
	}
	if list := header.Values("If-None-Match"); len(list) > 0 && old != nil && named(list, tag) {
		return nil, refuse(http.StatusPreconditionFailed, "manifest %s: If-None-Match: it is there", name)
	}
	return old, nil
}

// named reports whether a list of versions has one, or is any.
func named(list []string, tag string) bool {
	all := strings.Split(strings.Join(list, ","), ",")
	return slices.ContainsFunc(all, func(t string) bool { return strings.TrimSpace(t) == "*" || strings.TrimSpace(t) == tag })
}

// stored returns a manifest as it was written; nil if there is none.
func (h *Handler) stored(name string) ([]byte, error) {
	path := filepath.Join(h.dir, name)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("manifest %s: %w", name, cause(err))
	case !info.Mode().IsRegular():
		return nil, refuse(http.StatusConflict, "manifest %s: it is no regular file: %s", name, info.Mode())
	}
	// What is opened must be what was looked at, so that no link is followed that has taken its place.
	data, err := read(path, info)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("manifest %s: %w", name, cause(err))
	case data == nil:
		data = []byte{}
	}
	return data, nil
}
