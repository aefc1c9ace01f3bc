// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package safeyaml limits the cost of decoding untrusted YAML and JSON, before it is decoded. It does not decode objects, and
// does not check whether they are valid.
//
//	budget := safeyaml.NewBudget(len(file))
//	node, err := budget.YAML(document) // for each document of the file
//	...
//	err = budget.JSON(converted)
//	...
//	err = safeyaml.Quantities(converted, reflect.TypeFor[corev1.Pod]())
//
// A [Budget] is shared by all documents of a file. [Budget.YAML] parses a document into nodes. Before that, it counts the
// characters in the text that can begin a node; after it, it sums up the expanded size of aliases. [Budget.JSON] limits values,
// depth, lists, keys and strings. [Quantities] refuses numbers that take long to parse as a
// [k8s.io/apimachinery/pkg/api/resource.Quantity].
//
// The time of these functions, and of decoding accepted text, is linear in the length of the text.
//
// Concurrency: a Budget must not be used concurrently; Quantities may be called from any goroutine.
//
// Errors about content are of type [*Error], with a line or a path. They quote only keys on the path and the beginning of a
// quantity.
//
// Test kit: none is needed.
package safeyaml
