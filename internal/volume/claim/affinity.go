// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/nodeselector"
)

// ErrAffinity means that the nodeAffinity of a PV does not match the labels of the node.
var ErrAffinity = errors.New("no matching NodeSelectorTerms")

// CheckAffinity returns an error that wraps [ErrAffinity] if the nodeAffinity of pv does not match the labels of the node.
// It ignores matchFields, as the kubelet does. A term without requirements does not match. If no term matches, an invalid
// term is another error.
func CheckAffinity(pv *corev1.PersistentVolume, nodeLabels map[string]string) error {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	switch matches, err := nodeselector.Match(pv.Spec.NodeAffinity.Required.NodeSelectorTerms, "", nodeLabels); {
	case matches:
		return nil
	case err != nil:
		return fmt.Errorf("PV %s: %w", pv.Name, err)
	}
	return fmt.Errorf("PV %s: %w", pv.Name, ErrAffinity)
}
