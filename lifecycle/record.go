// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/atomicfile"
)

// record is what is known of a pod and told neither by its spec nor by the runtime.
type record struct {
	Version int `json:"version"`
	// Pod is the namespace and the name of the pod, with a slash between. Its UID is the name of the directory.
	Pod string `json:"pod,omitempty"`
	// Source is the one whose pod it is. Empty: it is not known.
	Source string `json:"source,omitempty"`
	// Status is the one published last. Nil: none was, or nobody wanted the pod any more.
	Status *corev1.PodStatus `json:"status,omitempty"`
	// Unhooked are the containers, by ID, whose postStart hook is yet to run to its end.
	Unhooked []string `json:"unhooked,omitempty"`
	// Sizes are the resources that the runtime was told of containers, by ID, as AnnotationResources has them.
	Sizes map[string]string `json:"sizes,omitempty"`
	// Sized is the key of the resources that the pod's cgroup is for. Empty: it is not known.
	Sized string `json:"sized,omitempty"`
}

// recordVersion is the one version of records so far. Others are left out of account.
const recordVersion = 1

// recordName is the name of the file in the directory of a pod.
const recordName = "record.json"

// recorder keeps the record of a pod in a file, so that it outlives the agent. What cannot be written is kept in memory, and
// written when the pod is looked at again.
type recorder struct {
	path   string // empty: there is no file
	pod    string // as it is written
	source string // whose pod it is

	mu      sync.Mutex
	now     record
	written []byte
	unsaved bool // the last write failed
}

// load reads what an earlier agent knew. After an error, which says what is wrong with the file, nothing is known.
func (r *recorder) load() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.path == "" {
		return nil
	}
	if err := atomicfile.Clean(r.path); err != nil {
		return err
	}
	data, err := os.ReadFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	var read record
	if err := json.Unmarshal(data, &read); err != nil {
		return fmt.Errorf("%s: %w", r.path, err)
	}
	if read.Version != recordVersion {
		return fmt.Errorf("%s: version %d is not %d", r.path, read.Version, recordVersion)
	}
	r.now, r.written = read, data
	return nil
}

// get returns what is known. It must not be written to.
func (r *recorder) get() record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// update changes what is known, and the file where that makes a difference. The change must not write to what it finds,
// but put something in its place. The end of a pod is on the disk when update returns; of the rest, a machine that loses
// power may lose the last seconds.
func (r *recorder) update(change func(now *record)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.now)
	if r.path == "" {
		return nil
	}
	err := r.save()
	r.unsaved = err != nil
	return err
}

// save writes what is known, if that is not in the file.
func (r *recorder) save() error {
	r.now.Version, r.now.Pod, r.now.Source = recordVersion, r.pod, r.source
	data, err := json.Marshal(&r.now)
	if err != nil || bytes.Equal(data, r.written) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.path), 0o750); err != nil {
		return err
	}
	write := atomicfile.Replace
	if st := r.now.Status; st != nil && terminal(st.Phase) {
		write = atomicfile.WriteFile
	}
	if err := write(r.path, data, 0o600); err != nil {
		return err
	}
	r.written = data
	return nil
}

// isSaved tells whether all that is known is in the file, if there is one.
func (r *recorder) isSaved() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.unsaved
}

// note changes the record of the pod. A pod is not held up by a disk that takes nothing.
func (w *worker) note(change func(now *record)) {
	if err := w.record.update(change); err != nil {
		w.warn("pod record", "error", err)
	}
}

// unhooked returns the containers whose postStart hook is yet to run to its end, and forgets those that do not exist any
// more.
func (w *worker) unhooked(observed cri.Pod) []string {
	ids := w.record.get().Unhooked
	gone := func(id string) bool {
		return !slices.ContainsFunc(observed.Containers, func(c cri.Container) bool {
			return c.ID == id && c.State != cri.ContainerExited
		})
	}
	if slices.ContainsFunc(ids, gone) {
		ids = slices.DeleteFunc(slices.Clone(ids), gone)
		w.note(func(now *record) { now.Unhooked = ids })
	}
	return ids
}

// sweep removes the directories of pods that nobody wants and the runtime does not have, which an agent leaves that dies
// between its last call for a pod and its last look at it. What has no record was not made by an agent. It does so, and
// returns true, once all that is wanted is known, and all that the runtime has: also the directory of a pod that could not
// be looked into, or that is another agent's, holds the IDs that its containers run with.
func (r *Reconciler) sweep() bool {
	observed, err := r.observer.Pods()
	r.mu.Lock()
	complete, known := r.complete() && err == nil, r.wanted()
	for uid := range r.workers {
		known[uid] = nil
	}
	for uid := range r.refused() {
		known[uid] = nil
	}
	r.mu.Unlock()
	for i := range observed {
		known[observed[i].UID] = nil
	}
	if !complete || r.opts.PodRoot == "" {
		return complete
	}
	entries, err := os.ReadDir(r.opts.PodRoot)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.opts.Logger.Warn("pod directories", "error", err)
	}
	for _, e := range entries {
		if _, ok := known[e.Name()]; ok || !r.isPodDir(e.Name()) {
			continue
		}
		r.opts.Logger.Info("remove files of a former pod", "uid", e.Name())
		if err := podFiles(filepath.Join(r.opts.PodRoot, e.Name())).remove(); err != nil {
			r.opts.Logger.Warn("remove files of a former pod", "uid", e.Name(), "error", err)
		}
	}
	return true
}
