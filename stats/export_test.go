// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

// ImageUser exports imageUsageReporter.
type ImageUser = imageUsageReporter
