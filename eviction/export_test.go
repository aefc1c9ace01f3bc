// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

// Functions that the external tests of this package call.
var (
	ParseReclaim     = parseReclaim
	QuantityOfAmount = Amount.formatFor
	FormatQuantity   = AmountFormat.formatQuantity
	Unblock          = State.withAbandoned
)
