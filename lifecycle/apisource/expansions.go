// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apisource

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/retryqueue"
)

// Expansions reports grown volumes to the API server, with a back-off, until it answers. Run does it.
type Expansions struct {
	queue *retryqueue.Queue[types.UID, expansion]
}

// expansion is the size of the volume of a claim on this node.
type expansion struct {
	claim *corev1.PersistentVolumeClaim
	size  int64
}

// NewExpansions returns a reporter of grown volumes. A nil logger discards.
func NewExpansions(objects *Objects, log *slog.Logger) *Expansions {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Expansions{retryqueue.New[types.UID](func(ctx context.Context, x *expansion) bool {
		err := objects.ClaimExpanded(ctx, x.claim, x.size)
		if err == nil || errors.Is(err, fs.ErrNotExist) { // the claim was deleted
			return true
		}
		log.Warn("expanded claim", "namespace", x.claim.Namespace, "claim", x.claim.Name, "error", err)
		return false
	})}
}

// Expanded records that the volume of a claim has size bytes on this node now. It has the signature of volume.Hooks.Expanded.
func (e *Expansions) Expanded(claim *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume, size int64) {
	e.queue.Put(claim.UID, &expansion{claim, size})
}

// Run reports until ctx ends.
func (e *Expansions) Run(ctx context.Context) error { return e.queue.Run(ctx) }
