// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
)

// RemoveStale removes the records of this agent that the run of a kubelet has made stale, if a kubelet has run since the last [Mark]. dir is the root
// directory of agent and kubelet. Empty: RemoveStale does nothing. It logs what it does, and its errors.
//
// The records are those of probe results, of the pods that sources have listed, of devices, and what [poddir.RemoveStale] removes of each pod. The agent
// then reads what it reads at its first take over: the API server, the runtime, and the files of the kubelet.
func RemoveStale(dir string, logger *slog.Logger) {
	if dir == "" {
		return
	}
	socket := filepath.Join(dir, "pod-resources", "kubelet.sock")
	ran, err := hasKubeletRun(socket)
	if err == nil && !ran {
		return
	}
	if err == nil {
		err = removeRecords(dir)
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

// removeRecords removes the records in dir that a kubelet does not update. The record of devices stays if there is no checkpoint to replace it.
func removeRecords(dir string) error {
	errs := []error{poddir.RemoveStale(filepath.Join(dir, "pods"))}
	records := []string{"probes", "pods.store"}
	checkpoint, err := lstat(filepath.Join(dir, "device-plugins", "kubelet_internal_checkpoint"))
	if checkpoint != nil {
		records = append(records, "devices")
	}
	errs = append(errs, err)
	for _, name := range records {
		errs = append(errs, removeFile(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}
