// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletstate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// writePause is the least time between two writes of the files.
const writePause = 100 * time.Millisecond

// retryBackOff returns the delays before a failed write is repeated.
func retryBackOff() backoff.Policy { return backoff.Policy{First: time.Second, Max: time.Minute} }

// Store has the allocated and the actual resources of pods. Create it with [Open].
type Store struct {
	dir     string
	logger  *slog.Logger
	changed chan struct{} // wakes Run

	mu        sync.Mutex // guards the fields below
	allocated map[string]json.RawMessage
	actuated  map[string]json.RawMessage
	unsaved   bool
}

// Open returns a Store with the entries of the files in dir, the kubelet's root directory. podsDir has the directories of pods, named by UID: entries of
// pods without a directory are dropped. A file that cannot be read is logged.
func Open(dir, podsDir string, logger *slog.Logger) *Store {
	s := Read(dir, podsDir, logger)
	for _, name := range []string{AllocatedName, ActuatedName} {
		if err := atomicfile.Clean(filepath.Join(dir, name)); err != nil {
			logger.Error("remove temporary files", "error", err)
		}
	}
	return s
}

// Read returns a Store like [Open], and changes no file before its Run is called: a kubelet may use the files.
func Read(dir, podsDir string, logger *slog.Logger) *Store {
	s := &Store{dir: dir, logger: logger, changed: make(chan struct{}, 1)}
	s.allocated, s.actuated = s.open(AllocatedName, podsDir), s.open(ActuatedName, podsDir)
	return s
}

// open returns the entries of the file with this name. After an error there are none, and Run replaces the file.
func (s *Store) open(name, podsDir string) map[string]json.RawMessage {
	pods, err := readFile(filepath.Join(s.dir, name))
	if err != nil {
		s.logger.Error("resources of pods that a kubelet has resized are lost", "error", err)
	}
	if pods == nil {
		s.unsaved = true
		return map[string]json.RawMessage{}
	}
	maps.DeleteFunc(pods, func(uid string, _ json.RawMessage) bool {
		_, err := os.Lstat(filepath.Join(podsDir, filepath.Base(uid)))
		return errors.Is(err, os.ErrNotExist)
	})
	return pods
}

// Allocation returns the CPU and memory allocated to the pod with this UID, or nil if they are unknown.
func (s *Store) Allocation(uid string) *resize.Allocation {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return decodeAllocation(s.allocated[uid])
}

// Actuated returns the CPU and memory that the containers of the pod with this UID have, or nil if they are unknown or those of the allocation.
func (s *Store) Actuated(uid string) *resize.Allocation {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Equal(s.allocated[uid], s.actuated[uid]) {
		return nil
	}
	return decodeAllocation(s.actuated[uid])
}

// Set stores the resources of a pod. allocated is the pod with its allocated resources, and actual with those that its containers have; nil: the
// allocated ones. Run writes them.
func (s *Store) Set(allocated, actual *corev1.Pod) {
	if s == nil {
		return
	}
	if actual == nil {
		actual = allocated
	}
	was, err := json.Marshal(infoOf(allocated))
	is, actualErr := json.Marshal(actuatedInfoOf(actual))
	if err = errors.Join(err, actualErr); err != nil {
		s.logger.Error("encode the resources of a pod", "namespace", allocated.Namespace, "pod", allocated.Name, "error", err)
		return
	}
	uid := string(allocated.UID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Equal(s.allocated[uid], was) && bytes.Equal(s.actuated[uid], is) {
		return
	}
	s.allocated[uid], s.actuated[uid], s.unsaved = was, is, true
	sleep.Wake(s.changed)
}

// Remove removes the entries of a pod that is removed from the node.
func (s *Store) Remove(uid string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.allocated[uid] == nil && s.actuated[uid] == nil {
		return
	}
	delete(s.allocated, uid)
	delete(s.actuated, uid)
	s.unsaved = true
	sleep.Wake(s.changed)
}

// Run writes the files after changes, until ctx ends, and then once more if a change is not written yet.
func (s *Store) Run(ctx context.Context) {
	if s == nil {
		return
	}
	defer s.saveFiles()
	for delay := time.Duration(0); ; {
		if s.saveFiles() {
			delay = 0
		} else {
			delay = retryBackOff().Next(delay)
		}
		if sleep.For(ctx, max(delay, writePause)) != nil {
			return
		}
		if delay > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
	}
}

// saveFiles writes the files if an entry has changed. It reports whether the files have all entries.
func (s *Store) saveFiles() bool {
	s.mu.Lock()
	if !s.unsaved {
		s.mu.Unlock()
		return true
	}
	allocated, actuated := maps.Clone(s.allocated), maps.Clone(s.actuated)
	s.unsaved = false
	s.mu.Unlock()
	// The allocation is first on disk: a kubelet then performs the resize.
	err := writeFile(filepath.Join(s.dir, AllocatedName), allocated)
	if err == nil {
		err = writeFile(filepath.Join(s.dir, ActuatedName), actuated)
	}
	if err == nil {
		return true
	}
	s.logger.Error("a kubelet that takes the node over does not find the newest resources of pods", "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsaved = true
	return false
}
