"""The hand-made features of the CRF, against those written out by hand."""

from spans_crf import _features, _tokens


def test_features_of_a_word_are_of_itself_and_its_two_neighbours():
    text = "In Bern 14 NN"
    first, second, *_ = _features(text, _tokens(text, words=True), words=True)
    assert first == [
        *("bias", "suffix3=In", "suffix2=In", "digits=False", "-1:none"),
        *("0:in", "0:title=True", "0:upper=False", "1:bern", "1:title=True", "1:upper=False"),
    ]
    assert second == [
        *("bias", "suffix3=ern", "suffix2=rn", "digits=False", "-1:in", "-1:title=True", "-1:upper=False"),
        *("0:bern", "0:title=True", "0:upper=False", "1:14", "1:title=False", "1:upper=False"),
    ]


def test_features_of_a_character_are_of_two_to_either_side_and_of_their_pairs():
    text = "北京大学"
    assert _features(text, _tokens(text, words=False), words=False)[1] == [
        *("bias", "-2:", "-1:北", "0:京", "1:大", "2:学"),
        *("-2,-1:北", "-1,0:北京", "0,1:京大", "1,2:大学", "-1,1:北大"),
    ]
