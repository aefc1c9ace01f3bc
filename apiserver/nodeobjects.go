// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// maxConflictTries is the largest number of attempts to change an object that another client changes too. The pause between
// attempts starts at 100 ms and doubles.
const maxConflictTries = 5

// EditNode changes labels and annotations of the Node object of this agent. It calls edit with a copy of the Node, and again
// after a conflict; edit returns false if it changed nothing. NodeInfo.AddToNode of package volume/csi can be used as edit.
func (b *Objects) EditNode(ctx context.Context, edit func(*corev1.Node) (changed bool, err error)) error {
	nodes := kubeapi.In(b.client, kubeapi.Nodes, "")
	return retryOnConflict(ctx, func() error {
		node, err := nodes.Get(ctx, b.node)
		if err != nil {
			return err
		}
		wanted := node.DeepCopy()
		if changed, err := edit(wanted); err != nil || !changed {
			return err
		}
		patch, err := buildMetadataPatch(&node.ObjectMeta, &wanted.ObjectMeta)
		if err != nil {
			return err
		}
		_, err = nodes.Patch(ctx, b.node, types.MergePatchType, patch)
		return err
	})
}

// buildMetadataPatch returns the JSON merge patch that changes labels and annotations.
func buildMetadataPatch(before, after *metav1.ObjectMeta) ([]byte, error) {
	metadata := map[string]any{"uid": before.UID, "resourceVersion": before.ResourceVersion} // a conflict if the object has changed
	if d := diffMap(before.Labels, after.Labels); len(d) > 0 {
		metadata["labels"] = d
	}
	if d := diffMap(before.Annotations, after.Annotations); len(d) > 0 {
		metadata["annotations"] = d
	}
	return json.Marshal(map[string]any{"metadata": metadata})
}

// diffMap returns the JSON merge patch from before to after: new and changed values, and nil for each removed key.
func diffMap(before, after map[string]string) map[string]any {
	d := map[string]any{}
	for key, value := range after {
		if old, ok := before[key]; !ok || old != value {
			d[key] = value
		}
	}
	for key := range maps.Keys(before) {
		if _, ok := after[key]; !ok {
			d[key] = nil
		}
	}
	return d
}

// EditCSINode changes the CSINode object of this agent, which lists the CSI drivers of the node, or creates it. It calls
// edit with a copy, and again after a conflict; edit returns false if it changed nothing. The Node owns a new CSINode.
func (b *Objects) EditCSINode(ctx context.Context, edit func(*storagev1.CSINode) (changed bool)) error {
	nodes := kubeapi.In(b.client, kubeapi.CSINodes, "")
	return retryOnConflict(ctx, func() error {
		o, err := nodes.Get(ctx, b.node)
		if apierrors.IsNotFound(err) {
			if o, err = b.newCSINode(ctx); err != nil {
				return err
			}
			if edit(o) {
				_, err = nodes.Create(ctx, o)
			}
			return err
		}
		if err != nil {
			return err
		}
		o = o.DeepCopy()
		if !edit(o) {
			return nil
		}
		_, err = nodes.Update(ctx, o)
		return err
	})
}

// newCSINode returns an empty CSINode that is owned by the Node.
func (b *Objects) newCSINode(ctx context.Context) (*storagev1.CSINode, error) {
	node, err := kubeapi.In(b.client, kubeapi.Nodes, "").Get(ctx, b.node)
	if err != nil {
		return nil, err
	}
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
		Name:            b.node,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
	}}, nil
}

// retryOnConflict calls change, and calls it again after a Conflict or AlreadyExists error. It makes at most
// maxConflictTries calls, with growing delays.
func retryOnConflict(ctx context.Context, change func() error) error {
	wait := 100 * time.Millisecond
	for try := 1; ; try++ {
		err := change()
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if try == maxConflictTries {
			return fmt.Errorf("%d tries: %w", try, err)
		}
		if sleep.For(ctx, wait) != nil {
			return err
		}
		wait *= 2
	}
}
