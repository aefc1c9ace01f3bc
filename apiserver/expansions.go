// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/internal/retryqueue"
	"github.com/seed81659283/nodeagent/internal/runonce"
)

// Expansions reports expanded volumes to the API server. It retries a report with a back-off until the API server accepts it or
// the claim is deleted. [Expansions.Run] sends the reports. Create one with [NewExpansions].
type Expansions struct {
	queue *retryqueue.Queue[types.UID, expansion]
	log   *slog.Logger
	guard runonce.Guard
}

// expansion is one report: the volume of claim has size bytes on this node.
type expansion struct {
	claim *corev1.PersistentVolumeClaim
	size  int64
}

// NewExpansions returns an Expansions, which reports expanded volumes through objects. It panics if objects is nil. If log
// is nil, messages are discarded.
func NewExpansions(objects *Objects, log *slog.Logger) *Expansions {
	required.MustArgs("apiserver.NewExpansions", required.Arg{Name: "objects", Value: objects, Hint: "Source.Objects"})
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Expansions{log: log, queue: retryqueue.New[types.UID](func(ctx context.Context, x *expansion) bool {
		err := objects.reportClaimExpanded(ctx, x.claim, x.size)
		if err == nil || errors.Is(err, fs.ErrNotExist) { // the claim was deleted
			return true
		}
		log.Warn("report expanded claim", "namespace", x.claim.Namespace, "claim", x.claim.Name, "error", err)
		return false
	})}
}

// Expanded queues a status update of the claim, after its volume has been expanded to size bytes on this node. It does not
// block. Use it as the hook Expanded of package volume.
func (e *Expansions) Expanded(claim *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume, size int64) {
	e.guard.Require("apiserver.Expansions", e.log, nil)
	e.queue.Put(claim.UID, &expansion{claim, size})
}

// Run sends the queued status updates until ctx ends, and then returns nil. A second call returns an error.
func (e *Expansions) Run(ctx context.Context) error {
	if err := e.guard.Begin(); err != nil {
		return fmt.Errorf("apiserver.Expansions: %w", err)
	}
	defer e.guard.End()
	return e.queue.Run(ctx)
}
