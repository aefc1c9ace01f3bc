// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
)

// RemoveStale removes the records of this agent that the run of a kubelet has made stale, if a kubelet has run since the last [Mark]. dir is the root
// directory of agent and kubelet. Empty: RemoveStale does nothing. It logs what it does, and its errors.
//
// The records are those of probe results, of the pods that sources have listed, of devices, and what [poddir.RemoveStale] removes of each pod. The agent
// then reads what it reads at its first take over: the API server, the runtime, and the files of the kubelet. The record of devices stays unless
// readCheckpoint reads the kubelet's checkpoint that replaces it.
func RemoveStale(dir string, readCheckpoint func(path string) (device.Previous, error), logger *slog.Logger) {
	if dir == "" {
		return
	}
	socket := filepath.Join(dir, "pod-resources", "kubelet.sock")
	ran, err := hasKubeletRun(socket)
	if err == nil && !ran {
		return
	}
	if err == nil {
		err = removeRecords(dir, hasCheckpoint(dir, readCheckpoint, logger))
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

// hasCheckpoint reports whether the checkpoint of devices in dir can be read. It logs the error of a damaged one.
func hasCheckpoint(dir string, read func(path string) (device.Previous, error), logger *slog.Logger) bool {
	_, err := read(filepath.Join(dir, "device-plugins", "kubelet_internal_checkpoint"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		logger.Error("the record of devices from before the run of a kubelet is used", "dir", dir, "error", err)
	}
	return err == nil
}

// removeRecords removes the records in dir that a kubelet does not update, and that of devices if devices is true.
func removeRecords(dir string, devices bool) error {
	errs := []error{poddir.RemoveStale(filepath.Join(dir, "pods"))}
	records := []string{"probes", "pods.store"}
	if devices {
		records = append(records, "devices")
	}
	for _, name := range records {
		errs = append(errs, removeFile(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}
