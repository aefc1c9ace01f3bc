// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeselector_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/nodeselector"
)

func requirement(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
}

func labelled(r ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: r}
}

func named(r ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: r}
}

// The node is n1 in zone a with 8 cores.
func TestMatch(t *testing.T) {
	node := map[string]string{"zone": "a", "cores": "8"}
	for _, test := range []struct {
		name    string
		terms   []corev1.NodeSelectorTerm
		matches bool
		err     string
	}{
		{"no terms", nil, false, ""},
		{"term without requirements", []corev1.NodeSelectorTerm{{}}, false, ""},
		{"in", []corev1.NodeSelectorTerm{labelled(requirement("zone", "In", "a", "b"))}, true, ""},
		{"not in", []corev1.NodeSelectorTerm{labelled(requirement("zone", "NotIn", "a", "b"))}, false, ""},
		{"not in, label missing", []corev1.NodeSelectorTerm{labelled(requirement("rack", "NotIn", "1"))}, true, ""},
		{"exists", []corev1.NodeSelectorTerm{labelled(requirement("zone", "Exists"))}, true, ""},
		{"does not exist", []corev1.NodeSelectorTerm{labelled(requirement("zone", "DoesNotExist"))}, false, ""},
		{"greater", []corev1.NodeSelectorTerm{labelled(requirement("cores", "Gt", "4"))}, true, ""},
		{"less", []corev1.NodeSelectorTerm{labelled(requirement("cores", "Lt", "4"))}, false, ""},
		{"term with an unmet requirement", []corev1.NodeSelectorTerm{labelled(requirement("zone", "Exists"), requirement("cores", "Lt", "4"))}, false, ""},
		{"one of two terms matches", []corev1.NodeSelectorTerm{labelled(requirement("zone", "In", "b")), labelled(requirement("zone", "In", "a"))}, true, ""},
		{"by name", []corev1.NodeSelectorTerm{named(requirement("metadata.name", "In", "n1"))}, true, ""},
		{"by the name of another node", []corev1.NodeSelectorTerm{named(requirement("metadata.name", "In", "n2"))}, false, ""},
		{"not in, by name", []corev1.NodeSelectorTerm{named(requirement("metadata.name", "NotIn", "n1"))}, false, ""},
		{"unknown field is empty", []corev1.NodeSelectorTerm{named(requirement("spec.podCIDR", "In", ""))}, true, ""},
		{"In with two names", []corev1.NodeSelectorTerm{named(requirement("metadata.name", "In", "n1", "n2"))}, false, "must have one element"},
		{"Exists for a name", []corev1.NodeSelectorTerm{named(requirement("metadata.name", "Exists"))}, false, `operator "Exists" of field`},
		{"unknown operator", []corev1.NodeSelectorTerm{labelled(requirement("zone", "Like", "a"))}, false, `nodeSelectorTerms[0]: operator "Like"`},
		{"greater than a non-number", []corev1.NodeSelectorTerm{labelled(requirement("cores", "Gt", "many"))}, false, "must be an integer"},
		{"invalid term and matching term", []corev1.NodeSelectorTerm{
			labelled(requirement("zone", "Like", "a")), labelled(requirement("zone", "In", "a")),
		}, true, ""},
		{"invalid term with an unmet requirement", []corev1.NodeSelectorTerm{
			labelled(requirement("zone", "In", "b"), requirement("zone", "Like", "a")),
		}, false, `operator "Like"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			matches, err := nodeselector.Match(test.terms, "n1", node)
			assert.Equal(t, test.matches, matches)
			if test.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, test.err)
			}
		})
	}

	matches, err := nodeselector.Match([]corev1.NodeSelectorTerm{named(requirement("metadata.name", "In", "n2"))}, "", node)
	assert.NoError(t, err)
	assert.True(t, matches, "without a node name fields are ignored")
}
