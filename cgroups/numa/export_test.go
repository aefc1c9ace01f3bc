// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

// DecodeRecord decodes the document of a record with the checksum that it needs.
func DecodeRecord(doc []byte) (Saved, error) { return decodeRecord(recordFormat().Encode(doc)) }

// SumText returns the checksum of the data of a checkpoint of version 3.
func SumText(data string) uint64 { return sumText(data) }
