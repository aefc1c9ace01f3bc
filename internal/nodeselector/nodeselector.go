// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeselector reports whether the terms of a node selector match a node. Pods and persistent volumes have such terms.
package nodeselector

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// nameField is the only supported field of a node selector term.
const nameField = "metadata.name"

// Match reports whether at least one term matches the node. A term without requirements matches no node. An empty name
// matches all requirements on fields. Without a match, the error joins the errors of invalid terms. Source:
// LazyErrorNodeSelector in k8s.io/component-helpers/scheduling/corev1/nodeaffinity.
func Match(terms []corev1.NodeSelectorTerm, name string, nodeLabels map[string]string) (bool, error) {
	var errs []error
	for i := range terms {
		if len(terms[i].MatchExpressions) == 0 && len(terms[i].MatchFields) == 0 {
			continue
		}
		matches, err := matchTerm(&terms[i], name, nodeLabels)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("nodeSelectorTerms[%d]: %w", i, err))
		case matches:
			return true, nil
		}
	}
	return false, errors.Join(errs...)
}

// matchTerm reports whether a node with this name and these labels meets all requirements of term.
func matchTerm(term *corev1.NodeSelectorTerm, name string, nodeLabels map[string]string) (bool, error) {
	// All requirements are checked: an invalid one must always be an error.
	matches := true
	for _, f := range term.MatchFields {
		switch {
		case f.Operator != corev1.NodeSelectorOpIn && f.Operator != corev1.NodeSelectorOpNotIn:
			return false, fmt.Errorf("operator %.64q of field %.256q is not supported", f.Operator, f.Key)
		case len(f.Values) != 1:
			return false, fmt.Errorf("field %.256q: must have one element in values", f.Key)
		}
		if name != "" {
			matches = matches && (nodeField(f.Key, name) == f.Values[0]) == (f.Operator == corev1.NodeSelectorOpIn)
		}
	}
	for _, e := range term.MatchExpressions {
		op, ok := labelOperator(e.Operator)
		if !ok {
			return false, fmt.Errorf("operator %.64q of label %.256q is not supported", e.Operator, e.Key)
		}
		r, err := labels.NewRequirement(e.Key, op, e.Values)
		if err != nil {
			return false, err
		}
		matches = matches && r.Matches(labels.Set(nodeLabels))
	}
	return matches, nil
}

// nodeField returns the node field that key selects: the name for metadata.name, otherwise "".
func nodeField(key, name string) string {
	if key == nameField {
		return name
	}
	return ""
}

// labelOperator returns the operator of label selectors that corresponds to op. It returns false if op is not supported.
func labelOperator(op corev1.NodeSelectorOperator) (selection.Operator, bool) {
	switch op {
	case corev1.NodeSelectorOpIn:
		return selection.In, true
	case corev1.NodeSelectorOpNotIn:
		return selection.NotIn, true
	case corev1.NodeSelectorOpExists:
		return selection.Exists, true
	case corev1.NodeSelectorOpDoesNotExist:
		return selection.DoesNotExist, true
	case corev1.NodeSelectorOpGt:
		return selection.GreaterThan, true
	case corev1.NodeSelectorOpLt:
		return selection.LessThan, true
	}
	return "", false
}
