// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/internal/plainfile"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Record is the persistent state of a pod that neither its spec nor the runtime provides. It is stored as JSON.
type Record struct {
	Version int `json:"version"`
	// Pod is namespace/name of the pod. The directory name is its UID.
	Pod string `json:"pod,omitempty"`
	// Source is the name of the source that listed the pod. Empty: unknown.
	Source string `json:"source,omitempty"`
	// Status is the last published status. Nil: none was published, or no source lists the pod.
	Status *corev1.PodStatus `json:"status,omitempty"`
	// PostStartPending lists the IDs of containers whose postStart hook has not completed.
	PostStartPending []string `json:"postStartPending,omitempty"`
	// Sizes are the resources last sent to the runtime, by container ID, in the format of resize.AnnotationResources.
	Sizes map[string]string `json:"sizes,omitempty"`
	// Allocated are the resources allocated to the pod. Nil: the pod is not admitted, or the allocation is unknown.
	Allocated *resize.Allocation `json:"allocated,omitempty"`
	// Sized are the resources that the pod cgroup was set up for, in the format of resize.Sizes.String. Empty: unknown.
	Sized string `json:"sized,omitempty"`
	// AdmissionPending is true until the pod is admitted.
	AdmissionPending bool `json:"admissionPending,omitempty"`
	// Rejection is why the pod was rejected at admission. Nil: it was not rejected.
	Rejection *podstatus.Rejection `json:"rejection,omitempty"`
	// Eviction is why the pod is being evicted although its source lists it. Nil: it is not.
	Eviction *podstatus.Eviction `json:"eviction,omitempty"`
	// EvictionHistory counts the recent temporary evictions of the pod.
	EvictionHistory EvictionHistory `json:"holds,omitzero"`
}

// EvictionHistory counts consecutive temporary evictions of a pod. It determines the back-off of the next one.
type EvictionHistory struct {
	Count  int       `json:"count"`
	Until  time.Time `json:"until"`            // earliest time of a new admission after the last eviction
	Reason string    `json:"reason,omitempty"` // of the last eviction
}

// Next returns the eviction history after another temporary eviction at now: the count grows, and with it the back-off by
// the policy wait. The count restarts at one if the last back-off expired more than reset ago.
func (h EvictionHistory) Next(now time.Time, wait backoff.Policy, reset time.Duration) EvictionHistory {
	if h.Count > 0 && now.Sub(h.Until) > reset {
		h.Count = 0
	}
	return EvictionHistory{Count: h.Count + 1, Until: now.Add(wait.After(h.Count + 1)), Reason: h.Reason}
}

// recordVersion is the version of the record format. Load rejects other versions.
const recordVersion = 1

// Size limits of a record in bytes. The status of a real pod is smaller.
const (
	maxRecord = 4 << 20  // for writing
	maxRead   = 32 << 20 // for reading; previous releases wrote larger records
)

// recordName is the name of the file in the directory of a pod.
const recordName = "record.json"

// Recorder keeps the record of a pod in memory and in a file, so that it survives a restart of the agent. After a failed write,
// the next Update retries.
type Recorder struct {
	path string // empty: no file
	pod  string // namespace/name

	mu         sync.Mutex // guards all below
	source     string     // name of the source that lists the pod
	record     Record
	writtenSum [sha256.Size]byte // of the content of the file; zero: unknown
	saveFailed bool              // the last write failed
	spareUsed  bool              // a spare file was used
}

// NewRecorder returns the Recorder that stores the record of a pod in a JSON file in dir. pod is "namespace/name".
// NewRecorder does not read the file; see [Recorder.Load].
func NewRecorder(dir Dir, pod string) *Recorder { return &Recorder{path: dir.recordPath(), pod: pod} }

// SetSource sets the name of the source that lists the pod. The next Update writes it to the record.
func (r *Recorder) SetSource(source string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.source = source
}

// Load reads the record that a previous agent process has written. A missing file is no error. If Load returns an error, the
// record is empty.
func (r *Recorder) Load() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.path == "" {
		return nil
	}
	if err := atomicfile.Clean(r.path); err != nil {
		return err
	}
	data, err := plainfile.Read(r.path, maxRead)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	var read Record
	if err := json.Unmarshal(data, &read); err != nil {
		return fmt.Errorf("%s: %w", r.path, err)
	}
	if read.Version != recordVersion {
		return fmt.Errorf("%s: version %d is not %d", r.path, read.Version, recordVersion)
	}
	r.record, r.writtenSum = read, sha256.Sum256(data)
	return nil
}

// Get returns the record. The caller must not modify its slices, maps and pointers.
func (r *Recorder) Get() Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record
}

// Update changes the record by calling change, and writes it to the file if it differs. change must replace slices, maps and
// pointers instead of modifying their targets. A terminal phase is on disk when Update returns. A power failure may undo
// other changes of the last seconds.
func (r *Recorder) Update(change func(now *Record)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.record)
	if r.path == "" {
		return nil
	}
	err := r.saveRecord()
	r.saveFailed = err != nil
	return err
}

// saveRecord writes the record to its file if it has changed.
func (r *Recorder) saveRecord() error {
	r.record.Version, r.record.Pod, r.record.Source = recordVersion, r.pod, r.source
	data, err := r.record.encodeBounded()
	if err != nil || sha256.Sum256(data) == r.writtenSum {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.path), 0o750); err != nil {
		return err
	}
	write := atomicfile.Replace
	if st := r.record.Status; st != nil && podstatus.IsTerminal(st.Phase) {
		write = atomicfile.WriteFile
	}
	root := filepath.Dir(filepath.Dir(r.path))
	err = write(r.path, data, 0o600)
	if err != nil && isDiskFull(err) && r.record.mustPersist() {
		// A spare file already has disk blocks.
		if spare := writeToSpare(root, r.path, data); spare != nil {
			return errors.Join(err, spare)
		}
		r.spareUsed = true
	} else if err != nil {
		return err
	} else if r.spareUsed { // the disk has free space again
		r.spareUsed = createSpares(root) != nil
	}
	r.writtenSum = sha256.Sum256(data)
	return nil
}

// mustPersist reports whether the pod is evicted or has a terminal phase. Without this record, a restarted agent would run
// the pod again.
func (r *Record) mustPersist() bool {
	return r.Eviction != nil || r.Status != nil && podstatus.IsTerminal(r.Status.Phase)
}

// isDiskFull reports whether err means that the disk is full or the disk quota is exceeded.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// IsSaved reports whether the last write of the record succeeded. It returns true for a Recorder without a file.
func (r *Recorder) IsSaved() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.saveFailed
}

// RecordedPods returns the UIDs of the pods that have a record in their directory below root.
func RecordedPods(root string) (uids []string, err error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if !IsFileName(e.Name()) {
			continue
		}
		if info, err := os.Lstat(filepath.Join(root, e.Name(), recordName)); err == nil && info.Mode().IsRegular() {
			uids = append(uids, e.Name())
		}
	}
	return uids, nil
}
