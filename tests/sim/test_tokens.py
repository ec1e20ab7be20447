import pytest

from pd_sim.tokens import OUTPUT_WORDS, block_hashes, count_tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("   ", 0),
        ("one", 1),
        ("one two three", 3),
        (" one  two\nthree\tfour ", 4),
        ("déjà vu", 2),
        ("x" * 12, 1),
        ("x" * 13, 2),
        ("一" * 24, 2),
        (" ".join(["word"] * 20_881), 20_881),
        ("\n".join(["word"] * 20_881), 20_881),
    ],
)
def test_a_word_is_a_token_and_twelve_characters_are_one_at_least(text, tokens):
    assert count_tokens(text) == tokens


def test_output_words_are_equally_long_and_differ():
    assert {len(word) for word in OUTPUT_WORDS} == {6}
    assert len(set(OUTPUT_WORDS)) == len(OUTPUT_WORDS) == 64


def test_texts_share_block_hashes_up_to_where_they_differ():
    first, second = block_hashes("a b c d e f g", 2), block_hashes("a b c X e f", 2)
    assert len(first) == len(second) == 3
    assert first[0] == second[0]
    assert first[1] != second[1]
    # The words are the same again, but what precedes them is not.
    assert first[2] != second[2]
