// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package safeyaml bounds what it costs to decode YAML and JSON whose author is not trusted, before anything of it is
// decoded. It decodes nothing itself, and says nothing about whether an object is valid.
//
// # Model
//
// A [Budget] is what the documents of one file may hold. [Budget.YAML] parses a document into a tree of nodes: how many
// there can be at most is counted in the text first, and what aliases expand to is added up in the tree, where it costs
// nothing yet. [Budget.JSON] walks JSON, which may be what a document was converted to, and bounds values, depth,
// lists, keys and strings. [Quantities] walks the JSON of an object of a known type, and refuses numbers that take long
// to parse where the type has a [k8s.io/apimachinery/pkg/api/resource.Quantity]: elsewhere the same text is harmless.
//
// The time of all of these is linear in the text, and so is that of decoding what they let through.
//
// # Errors
//
// Every error about content is an [*Error], which has the line or the path of what is refused. It quotes no more than
// the keys on the path and, for a quantity, its beginning.
package safeyaml
