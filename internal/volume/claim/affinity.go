// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/nodeselector"
)

// ErrAffinity is why a volume cannot be had on a node.
var ErrAffinity = errors.New("no matching NodeSelectorTerms")

// CheckAffinity returns why a volume does not belong to a node with those labels, or nil. Of its terms one has to match. One without
// any requirement matches nothing, and one that cannot be understood counts only if none matches. The name of the node, for which a
// term can have matchFields, is not looked at, as by the kubelet.
func CheckAffinity(pv *corev1.PersistentVolume, node map[string]string) error {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	switch matches, err := nodeselector.Match(pv.Spec.NodeAffinity.Required.NodeSelectorTerms, "", node); {
	case matches:
		return nil
	case err != nil:
		return fmt.Errorf("PV %s: %w", pv.Name, err)
	}
	return fmt.Errorf("PV %s: %w", pv.Name, ErrAffinity)
}
