// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

// Constants that only tests need.
const (
	LabelBetaOS              = labelBetaOS
	LabelBetaArch            = labelBetaArch
	AnnotationAttachDetach   = annotationAttachDetach
	AnnotationProvidedNodeIP = annotationProvidedNodeIP
	TaintUninitialized       = taintUninitialized
)

// Addresses exports nodeAddresses.
var Addresses = nodeAddresses

// NeedsLookup exports needsLookup.
func (c *Config) NeedsLookup() bool { return c.needsLookup() }
