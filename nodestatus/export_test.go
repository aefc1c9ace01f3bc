// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

// Names of the API that only tests need.
const (
	LabelBetaOS              = labelBetaOS
	LabelBetaArch            = labelBetaArch
	AnnotationAttachDetach   = annotationAttachDetach
	AnnotationProvidedNodeIP = annotationProvidedNodeIP
	TaintUninitialized       = taintUninitialized
)

// Addresses is addresses.
var Addresses = nodeAddresses

// NeedsLookup is needsLookup.
func (c *Config) NeedsLookup() bool { return c.needsLookup() }
