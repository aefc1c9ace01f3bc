// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

// ErrTwice is errRunTwice.
var ErrTwice = errRunTwice

// ImageUser is imageUser.
type ImageUser = imageUser
