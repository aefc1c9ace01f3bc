// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

// Functions that the tests of this package call directly.
var (
	ParseReclaim     = parseReclaim
	QuantityOfAmount = Amount.formatFor
	FormatQuantity   = AmountFormat.formatQuantity
	Unblock          = State.withAbandoned
)
