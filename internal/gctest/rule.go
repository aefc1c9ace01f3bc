// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gctest

// The rules, which are in the documentation of gc.ImageGC.
const (
	ruleEnough   = "Reclaim: Reclaim removes images that nothing uses, those first that were unused for the longest time, until want more bytes are available than before, and returns how many that are."
	ruleShort    = "Reclaim: Where there are less, the error is a [*ShortError], which says why each image that is left stays."
	ruleZero     = "Reclaim: Zero bytes are there already."
	ruleAll      = "Reclaim: For [All] it is no error that there were less; an image that could not be removed is."
	ruleUsed     = "Reclaim: An image that a container uses is not removed, nor one that the runtime has pinned."
	ruleTogether = "Reclaim: Of calls at the same time one waits for the others."
	ruleContext  = "Reclaim: When ctx ends nothing more is removed, and freed says what was."
)
