// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gctest

// The rules are sentences of the documentation of gc.ImageGC.
const (
	ruleEnough   = "Reclaim: Reclaim removes unused images, least recently used first, until want more bytes are available than before."
	ruleShort    = "Reclaim: If this is less than want, the error is a [*ShortError] with the reasons why the remaining images stay."
	ruleZero     = "Reclaim: A want of zero does nothing."
	ruleAll      = "Reclaim: For [ReclaimAll] only failed removals are an error."
	ruleUsed     = "Reclaim: Images used by containers or pinned by the runtime are never removed."
	ruleTogether = "Reclaim: Concurrent calls run one after another."
	ruleContext  = "Reclaim: When ctx ends, no further image is removed, and freed has the bytes freed so far."
)
