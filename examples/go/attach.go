// Attaches a volume through the library socket of `hawser node`; Enter takes it away again.
//
//	hawser node --alone --library /run/hawser/library.sock &
//	go run attach.go /run/hawser/library.sock info.json
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
)

type frame struct {
	ID    int             `json:"id"`
	OK    json.RawMessage `json:"ok"`
	Error *struct {
		Messages []string `json:"messages"`
	} `json:"error"`
}

type library struct {
	in     *json.Decoder
	out    *json.Encoder
	number int
}

func (l *library) call(method string, params, answer any) error {
	l.number++
	err := l.out.Encode(map[string]any{"id": l.number, "method": method, "params": params})
	for err == nil {
		var got frame
		if err = l.in.Decode(&got); err != nil || got.ID != l.number {
			continue
		}
		if got.Error != nil {
			return fmt.Errorf("%s", strings.Join(got.Error.Messages, ": "))
		}
		return json.Unmarshal(got.OK, answer)
	}
	return err
}

func main() {
	log.SetFlags(0)
	stream, err := net.Dial("unix", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	info, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	l := &library{in: json.NewDecoder(stream), out: json.NewEncoder(stream)}
	hello := map[string]any{"hello": map[string]any{"version": 1, "role": "caller"}}
	if err := l.out.Encode(hello); err != nil {
		log.Fatal(err)
	}
	params := map[string]any{"info": json.RawMessage(info)}
	var made struct {
		Value struct {
			VolumeID string `json:"volume_id"`
			Path     string `json:"path"`
		} `json:"value"`
	}
	if err := l.call("library.connect", params, &made); err != nil {
		log.Fatal(err)
	}
	fmt.Println(made.Value.VolumeID, "is", made.Value.Path)
	fmt.Scanln()
	if err := l.call("library.disconnect", params, &struct{}{}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(made.Value.VolumeID, "is gone")
}
