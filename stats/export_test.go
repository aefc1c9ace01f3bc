// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

// ImageUser is imageUser.
type ImageUser = imageUsageReporter
