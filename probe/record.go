// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"encoding/json"
	"errors"
	"hash/crc32"
	"strconv"
)

// storeRecord is a line of the store file: the value of a probe from this line on.
type storeRecord struct {
	key   Key
	value Value // empty ContainerID: the probe is removed
}

// sumLength is the number of hexadecimal digits of the CRC-32C at the start of a line. A space and a JSON array of strings
// follow. The checksum of an incomplete line does not match.
const sumLength = 8

var errDamaged = errors.New("damaged line")

// appendLine appends this record to buf, as one line of the store file.
func (r storeRecord) appendLine(buf []byte) []byte {
	k, v := r.key, r.value
	// Strings can always be marshalled.
	text, _ := json.Marshal([]string{k.PodUID, k.Container, k.Kind.String(), v.ContainerID, v.Outcome.String()})
	sum := strconv.FormatUint(uint64(computeChecksum(text)), 16)
	for range sumLength - len(sum) {
		buf = append(buf, '0')
	}
	buf = append(append(buf, sum...), ' ')
	return append(append(buf, text...), '\n')
}

// parseRecord parses one line of the store file. The line must end with its line break.
func parseRecord(line []byte) (storeRecord, error) {
	line, whole := bytes.CutSuffix(line, []byte("\n"))
	if !whole || len(line) < sumLength+1 || line[sumLength] != ' ' {
		return storeRecord{}, errDamaged
	}
	text := line[sumLength+1:]
	sum, err := strconv.ParseUint(string(line[:sumLength]), 16, 32)
	if err != nil || uint32(sum) != computeChecksum(text) {
		return storeRecord{}, errDamaged
	}
	var field []string
	if json.Unmarshal(text, &field) != nil || len(field) != 5 {
		return storeRecord{}, errDamaged
	}
	r := storeRecord{key: Key{PodUID: field[0], Container: field[1]}, value: Value{ContainerID: field[3]}}
	for r.key.Kind.String() != field[2] {
		if r.key.Kind++; r.key.Kind > Liveness {
			return storeRecord{}, errDamaged
		}
	}
	for r.value.Outcome.String() != field[4] {
		if r.value.Outcome++; r.value.Outcome > Failure {
			return storeRecord{}, errDamaged
		}
	}
	return r, nil
}

func computeChecksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
