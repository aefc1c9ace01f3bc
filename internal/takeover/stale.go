// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
)

// Checkpoint is a file of the kubelet that replaces a record of this agent.
type Checkpoint struct {
	Record string                  // name of the record in the root directory
	File   string                  // path of the kubelet's file in the root directory
	Read   func(path string) error // reads the file; an error keeps the record
}

// NewCheckpoint returns the Checkpoint of a file that the function read reads.
func NewCheckpoint[T any](record, file string, read func(path string) (T, error)) Checkpoint {
	return Checkpoint{Record: record, File: file, Read: func(path string) error {
		_, err := read(path)
		return err
	}}
}

// RemoveStale removes the records of this agent that the run of a kubelet has made stale, if a kubelet has run since the last [Mark]. dir is the root
// directory of agent and kubelet. Empty: RemoveStale does nothing. It logs what it does, and its errors.
//
// The records are those of probe results, of the pods that sources have listed, of each of checkpoints whose file can be read, and what
// [poddir.RemoveStale] removes of each pod. The agent then reads what it reads at its first take over: the API server, the runtime, and the files of the
// kubelet.
func RemoveStale(dir string, logger *slog.Logger, checkpoints ...Checkpoint) {
	if dir == "" {
		return
	}
	socket := filepath.Join(dir, "pod-resources", "kubelet.sock")
	ran, err := hasKubeletRun(socket)
	if err == nil && !ran {
		return
	}
	if err == nil {
		err = removeRecords(dir, listReplaced(dir, checkpoints, logger))
		logger.Info("a kubelet has run on the node since this agent: older records of pods are removed", "dir", dir)
	}
	if err != nil {
		logger.Error("records from before the run of a kubelet may be used", "dir", dir, "error", err)
		return
	}
	if err := Mark(socket, socket); err != nil {
		logger.Error("the records of pods may be removed again at the next start", "dir", dir, "error", err)
	}
}

// Marker returns a function that calls [Mark] and logs its error, for a hook of the server of the podresources API.
func Marker(logger *slog.Logger) func(temporary, path string) {
	return func(temporary, path string) {
		if err := Mark(temporary, path); err != nil {
			logger.Error("older records of pods are not used after the next start", "error", err)
		}
	}
}

// listReplaced returns the names of the records whose checkpoints in dir can be read. It logs the error of a damaged checkpoint.
func listReplaced(dir string, checkpoints []Checkpoint, logger *slog.Logger) (records []string) {
	for _, c := range checkpoints {
		err := c.Read(filepath.Join(dir, c.File))
		if err == nil {
			records = append(records, c.Record)
		} else if !errors.Is(err, fs.ErrNotExist) {
			logger.Error("a record from before the run of a kubelet is used", "record", c.Record, "dir", dir, "error", err)
		}
	}
	return records
}

// removeRecords removes the records in dir that a kubelet does not update, and those in replaced.
func removeRecords(dir string, replaced []string) error {
	errs := []error{poddir.RemoveStale(filepath.Join(dir, "pods"))}
	for _, name := range append([]string{"probes", "pods.store"}, replaced...) {
		errs = append(errs, removeFile(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}
