// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podsapi

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle"
)

// Reconciler runs the pods of a node. *lifecycle.Reconciler and *lifecycle.Handle implement it.
type Reconciler interface {
	Pods() []lifecycle.PodState                  // see [lifecycle.Reconciler.Pods]
	Active() (pods []*corev1.Pod, complete bool) // see [lifecycle.Reconciler.Active]
}

// PodsWithStatus returns a Source that lists the pods of reconciler with their statuses. It omits deleted pods, which their
// pod source no longer lists.
func PodsWithStatus(reconciler Reconciler) Source {
	return SourceFunc(func() (list []Pod, complete bool) {
		for _, state := range reconciler.Pods() {
			if !state.Deleted {
				list = append(list, Pod{Pod: state.Spec, Status: state.Status})
			}
		}
		_, complete = reconciler.Active()
		return list, complete
	})
}

// ListenAndRun listens on the unix socket at path, and runs the server until ctx ends. If it cannot listen, it logs the error
// and returns nil: pods run without this API. See [Listen] and [Server.Run].
func (s *Server) ListenAndRun(ctx context.Context, path string, log *slog.Logger) error {
	l, err := Listen(path)
	if err != nil {
		log.Error("the pods API is not served", "error", err)
		return nil
	}
	return s.Run(ctx, l)
}
